"""A court on several machines.

The *first machine* has the king, envoy, sentinel and chamberlain; a *joined machine* runs generals only. Each has a
home of its own, and they share one PostgreSQL:

* tasks are claimed from the court's queue, each by one general on one machine (``gen-pr@builder-2``);
* **reports** go from a joined machine to the first one: results, costs, journal lines and the files of finished tasks;
* **orders** go the other way: cancel this task;
* a table has one row for each machine, another the packages of the generals.

The first machine puts reports into its own home, where everything else reads them. While it is down, reports wait in
the database and joined machines go on working.
"""
