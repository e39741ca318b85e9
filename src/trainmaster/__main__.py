"""`python -m trainmaster` is `tm`."""

from trainmaster.cli.main import main

if __name__ == "__main__":
    main()
