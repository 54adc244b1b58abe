"""The C++ core: each module here is built from the source file of the same name."""
