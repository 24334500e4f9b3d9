"""Small tables for people: functions from tables of silver to one of gold, each of them a Spark plan and no more."""
