//! The attention list: open ones unless asked, with their ways out, one merchant's only.

use super::*;

on_both_stores! {
    async fn open_items_offer_their_ways_out(fresh) {
        for (id, code, merchant) in [("a1", "paid_twice", "default"), ("a2", "amount_mismatch", "default"), ("a3", "paid_twice", "other")] {
            fresh.by_hand(&format!(
                "insert into attention (id, code, source, merchant, order_id, explanation, created_at)
                 values ('{id}', '{code}', '{id}', '{merchant}', 'ORDER-1', 'in words', 1)"
            )).await.unwrap();
        }
        fresh.by_hand(
            "update attention set state = 'resolved', resolved_at = micros(2), resolved_by = 'ops', resolution = 'keep',
             resolution_reason = 'agreed' where id = 'a1'",
        ).await.unwrap();
        let api = Api::over(&fresh);
        let open = api.json(OPS, "/v1/attention").await;
        assert_eq!(open["items"].as_array().unwrap().len(), 1);
        assert_eq!(open["items"][0]["id"], "a2");
        assert_eq!(open["items"][0]["state"], "open");
        assert_eq!(open["items"][0]["explanation"], "in words");
        let actions: Vec<_> = open["items"][0]["actions"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        for action in ["accept_payment", "refunded_outside", "dismiss"] {
            assert!(actions.contains(&action), "{action} in {actions:?}");
        }
        let all = api.json(OPS, "/v1/attention?state=all").await;
        assert_eq!(all["items"].as_array().unwrap().len(), 2);
        assert_eq!(all["items"][1]["resolution"]["action"], "keep");
        assert_eq!(all["items"][1]["actions"], serde_json::json!([]));
        assert_eq!(api.walk(OTHER, "/v1/attention", 1, "id").await, ["a3"]);
    }
}
