"""What is checked of a draft on the machine that submits it."""
