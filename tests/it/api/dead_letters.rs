//! Dead letters through the API: one merchant's and nobody's, without what they held.

use super::*;

on_both_stores! {
    async fn a_reader_sees_its_own_and_nobodys(fresh) {
        let held = blob(&fresh, b"a forged message");
        for (id, merchant, redriven) in [
            ("d1", "'default'", "null"), ("d2", "'other'", "null"), ("d3", "null", "null"), ("d4", "'default'", "9"),
        ] {
            fresh.by_hand(&format!(
                "insert into dead_letters (id, event_id, event_key, merchant, error, attempts, message, created_at, redriven_at)
                 values ('{id}', null, 'k', {merchant}, 'broke', 8, {held}, 1, {redriven})"
            )).await.unwrap();
        }
        let api = Api::over(&fresh);
        assert_eq!(api.walk(OPS, "/v1/dead-letters", 1, "id").await, ["d3", "d1"]);
        let all = api.json(OPS, "/v1/dead-letters?state=all").await;
        assert_eq!(all["items"].as_array().unwrap().len(), 3);
        assert_eq!(all["items"][0]["redriven_at"], "1970-01-01T00:00:00.000009Z");
        assert_eq!(api.json(OPS, "/v1/dead-letters/d1").await, serde_json::json!({
            "id": "d1", "event_id": null, "event_key": "k", "error": "broke", "attempts": 8,
            "created_at": "1970-01-01T00:00:00.000001Z", "redriven_at": null
        }));
        assert_eq!(api.json(OPS, "/v1/dead-letters/d3").await["id"], "d3");
        for id in ["d2", "nothing"] {
            api.refuses(OPS, &format!("/v1/dead-letters/{id}"), 404, "not_found").await;
        }
        api.refuses(OPS, "/v1/dead-letters?state=some", 400, "validation").await;
    }
}
