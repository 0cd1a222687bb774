"""The rules, one by one: against the paper, other libraries, laws, and each other."""
