"""What reports and pages have of one environment beside what they have of every one: a module an environment."""
