"""Measurements that anyone can run again, and the models they are made on."""
