"""The dashboard: the verbs of the command line, and the pictures of the reports, in a page."""
