//! Topic bindings, as the broker matches them: `*` is one word, `#` any number of words, words stand between
//! dots.
//!
//! Needed to tell a message that nobody asked for, which is done, from one whose queue has vanished, which has
//! to wait. Pure.

/// Whether a queue bound with `binding` gets messages with `routing_key`.
pub fn binding_matches(binding: &str, routing_key: &str) -> bool {
    let key = words(routing_key);
    // `reached[n]`: the pattern so far can match the first n words.
    let mut reached = vec![false; key.len() + 1];
    if let Some(start) = reached.first_mut() {
        *start = true;
    }
    for pattern in words(binding) {
        reached = advance(&reached, pattern, &key);
    }
    reached.last().copied().unwrap_or(false)
}

/// Whether the broker takes `binding` as one: not too long, no control characters.
pub fn is_valid_binding(binding: &str) -> bool {
    binding.len() <= 255 && !binding.chars().any(char::is_control)
}

fn advance(reached: &[bool], pattern: &str, words: &[&str]) -> Vec<bool> {
    let mut any_before = false;
    let mut next = Vec::with_capacity(reached.len());
    let mut before = false;
    for (n, here) in reached.iter().copied().enumerate() {
        any_before |= here;
        let word = n.checked_sub(1).and_then(|last| words.get(last).copied());
        next.push(match (pattern, word) {
            ("#", _) => any_before,
            ("*", Some(_)) => before,
            (pattern, Some(word)) => before && pattern == word,
            (_, None) => false,
        });
        before = here;
    }
    next
}

/// The broker takes an empty routing key as no words.
fn words(routing_key: &str) -> Vec<&str> {
    if routing_key.is_empty() {
        Vec::new()
    } else {
        routing_key.split('.').collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_match_as_the_broker_does() {
        for (binding, key) in [
            ("order.paid", "order.paid"),
            ("order.*", "order.paid"),
            ("#", "order.paid"),
            ("#", ""),
            ("", ""),
            ("order.#", "order"),
            ("order.#", "order.paid.twice"),
            ("#.paid", "paid"),
            ("#.paid", "order.paid"),
            ("*.*", "order.paid"),
            ("*.shop-cn.#", "alipay.shop-cn.payment.succeeded"),
            ("#.succeeded", "alipay.shop-cn.payment.succeeded"),
            ("alipay.#.succeeded", "alipay.succeeded"),
            ("#.#", "a"),
            ("#.#", ""),
            ("a.#.b.#", "a.b.b.c"),
        ] {
            assert!(binding_matches(binding, key), "{binding} {key}");
        }
        for (binding, key) in [
            ("order.paid", "order.refunded"),
            ("order.*", "order"),
            ("order.*", "order.paid.twice"),
            ("*", "order.paid"),
            ("order", "order.paid"),
            ("#.paid", "order.paid.twice"),
            ("attention.*", "order.paid"),
            ("ORDER.paid", "order.paid"),
            ("*", ""),
        ] {
            assert!(!binding_matches(binding, key), "{binding} {key}");
        }
    }

    #[test]
    fn many_wildcards_stay_cheap() {
        let binding = ["#"; 60].join(".a.");
        let key = ["a"; 120].join(".");
        assert!(binding_matches(&binding, &key));
        assert!(!binding_matches(&format!("{binding}.b"), &key));
    }
}
