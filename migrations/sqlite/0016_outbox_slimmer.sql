-- Nothing asks for it: the metrics read the outbox whole.
drop index outbox_unpublished;
