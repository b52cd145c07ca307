"""What every test process starts from."""

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, which many of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)
