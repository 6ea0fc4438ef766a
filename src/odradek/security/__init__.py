"""Access rules, logins and quotas: what each client may do, and how much. No I/O."""
