"""Figures of attempts, kept as an attribute of their trial, by the attempt's number."""

from __future__ import annotations


def write_sql(key: str, figure: str, *, ended: bool = False) -> str:
    """Return the statement that keeps a figure of the attempt with ``%(token)s``.

    It does nothing where that attempt lives no more or, with ``ended``, where it still does.

    Args:
        key: The attribute.
        figure: SQL of what is kept.
    """
    state = "outcome IS NOT NULL" if ended else "outcome IS NULL"
    return f"""
WITH attempt AS (SELECT trial_id, number FROM sweep_attempt WHERE token = %(token)s
  AND {state} FOR SHARE)
INSERT INTO trial_user_attributes AS u (trial_id, key, value_json)
SELECT trial_id, '{key}', jsonb_build_object(number::text, {figure})::text
FROM attempt
ON CONFLICT (trial_id, key) DO UPDATE SET value_json = (CASE
  WHEN jsonb_typeof(u.value_json::jsonb) = 'object' THEN u.value_json::jsonb ELSE '{{}}'::jsonb END
  || excluded.value_json::jsonb)::text
"""
