"""python -m rooftop."""

from rooftop.cli.app import main

if __name__ == "__main__":
    main()
