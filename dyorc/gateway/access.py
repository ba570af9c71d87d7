"""Who may use the server: API keys and the tenants they belong to."""

from dyorc.gateway.tenants import ANONYMOUS, Tenant


class Access:
    """Tells tenants by their keys.

    Args:
        keys_file: Where keys and tenants are listed; empty: nobody needs one.
    """

    def __init__(self, keys_file: str = "") -> None:
        self.is_open = not keys_file

    def tenant_of(self, key: str | None) -> Tenant:
        """Whose key it is.

        Raises:
            AuthenticationError: If it is nobody's.
        """
        return ANONYMOUS
