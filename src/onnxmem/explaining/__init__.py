"""What is a measured peak made of, and what would make it smaller? Measurement + model → Explanation."""
