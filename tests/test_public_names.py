"""What users import from `untildone`: adding or removing a name is a decision, so it is written down twice."""

