"""Commands that submit jobs or change them.

Turning options into a spec is in `trainmaster.spec`, sending it in `trainmaster.client`.
"""
