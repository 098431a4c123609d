"""`python -m extender` is the `gang-extender` command."""

from extender.cli.main import main

if __name__ == "__main__":
    main()
