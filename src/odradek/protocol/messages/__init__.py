"""One file per API: its request and response, in every version. See `protocol/README.md` for how to read one."""
