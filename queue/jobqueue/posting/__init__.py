"""The built-in kind `http.post`: send a payload to an address of the tenant's choice, and judge the answer."""
