-- slot_turn: use up one transaction id, so that the oldest running one becomes known to be past.
SELECT pg_current_xact_id()::text
