"""Routes that submit, list, hold, cancel and forecast jobs.

A command is durable when it is answered; `trainmaster.control` carries it out.
"""
