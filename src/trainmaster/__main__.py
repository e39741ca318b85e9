"""`python -m trainmaster`: the same as `tm`."""

from trainmaster.cli.main import main

if __name__ == "__main__":
    main()
