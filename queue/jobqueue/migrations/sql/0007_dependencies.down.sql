-- Nothing: the tables go with their models.
SELECT 1;
