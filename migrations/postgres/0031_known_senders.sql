-- Networks that an account's new events came from, in the form of quarantine.sender.
create table known_senders (
    provider text    not null,
    account  text    not null,
    network  text    not null,
    seen_at  bigint  not null,
    primary key (provider, account, network)
);
