"""A court on several machines.

The machine that *leads* has the king, envoy, sentinel and chamberlain; a *joined machine* runs generals only; one that
*stands by* takes the lead over. Each has a home of its own, and they share one PostgreSQL:

* tasks are claimed from the court's queue, each by one general on one machine (``gen-pr@builder-2``);
* **reports** go from a joined machine to the one that leads: results, costs, journal lines, files of finished tasks;
* **orders** go the other way: cancel this task;
* a table has one row for each machine, another the packages of the generals.

The machine that leads puts reports into its own home, where everything else reads them. While there is none, reports
wait in the database and joined machines go on working. Its files are copied to the database while another stands by.
"""
