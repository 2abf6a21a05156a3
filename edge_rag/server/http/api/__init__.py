"""The plain JSON API below ``/api/v1``, and its OpenAPI document from the same types."""
