"""The simulated world: seeded histories of the production loop and stores under a virtual clock and injected faults."""
