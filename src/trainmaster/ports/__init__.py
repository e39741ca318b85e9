"""What the loop needs of the world, as protocols of at most seven verbs. Adapters implement them; nothing here runs."""
