"""The providers' SDKs on both sides of payhook, driven by tests/it/interop.rs.

    sdks.py send   < {"keys": …, "at": seconds}   > [{"name", "account", "headers", "body"}]: requests that the SDKs signed
    sdks.py judge  < {"keys": …, "requests": […]} > [null | "why refused"]: what the SDKs say to each request

Bodies are base64. Nothing here talks to the network.
"""
import base64, json, sys, time, urllib.parse

import jwt
import stripe
from alipay import AliPay
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from stripe._webhook import WebhookSignature
from wechatpayv3 import WeChatPay, WeChatPayType
from wechatpayv3.utils import load_certificate, load_private_key, rsa_sign


def request(name, account, headers, body):
    return {"name": name, "account": account, "headers": headers, "body": base64.b64encode(body).decode()}


CLIENTS = {}  # parsing keys takes the SDKs longer than judging does


def once(name, make):
    if name not in CLIENTS:
        CLIENTS[name] = make()
    return CLIENTS[name]


def alipay_client(keys):
    return AliPay(appid="2021000000000001", app_private_key_string=keys["alipay_private"],
                  alipay_public_key_string=keys["alipay_public"], sign_type="RSA2")


def send(given):
    keys, at, out = given["keys"], given["at"], []
    beijing = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at + 8 * 3600))

    # Alipay: the signer joins whatever it is given, so leaving sign_type out or in makes either rule.
    fields = {"app_id": "2021000000000001", "charset": "utf-8", "notify_id": "N-sdk", "notify_time": beijing,
              "out_trade_no": "ORDER-1", "trade_no": "T-1", "total_amount": "88.88", "trade_status": "TRADE_SUCCESS",
              "gmt_payment": beijing, "subject": "测试 100% + A&B=\"x\"", "empty": "", "at": "@file"}
    client = alipay_client(keys)
    usual = client.sign_data(dict(fields)) + "&sign_type=RSA2"
    out.append(request("alipay", "alipay/shop-cn", {}, usual.encode()))
    kept = client.sign_data(dict(fields, notify_id="N-kept", sign_type="RSA2"))
    out.append(request("alipay, sign_type kept", "alipay/shop-cn", {}, kept.encode()))

    # WeChat Pay: the SDK's own signing; it only opens resources, so the sealing is its library's.
    resource = json.dumps({"mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": "ORDER-2",
                           "transaction_id": "42", "trade_state": "SUCCESS", "success_time": "2026-11-29T12:05:04+08:00",
                           "amount": {"total": 8888, "currency": "CNY"}})
    for aad in ("transaction", ""):
        sealed = AESGCM(keys["wechat_v3_key"].encode()).encrypt(b"0123456789ab", resource.encode(), aad.encode())
        body = json.dumps({"id": "EV-" + aad, "create_time": "2026-11-29T12:05:05+08:00",
                           "resource_type": "encrypt-resource", "event_type": "TRANSACTION.SUCCESS", "summary": "支付成功",
                           "resource": {"original_type": "transaction", "algorithm": "AEAD_AES_256_GCM",
                                        "ciphertext": base64.b64encode(sealed).decode(), "associated_data": aad,
                                        "nonce": "0123456789ab"}}, ensure_ascii=not aad)
        signature = rsa_sign(load_private_key(keys["wechat_private"]), f"{at}\nnonce\n{body}\n")
        headers = {"Wechatpay-Timestamp": str(at), "Wechatpay-Nonce": "nonce", "Wechatpay-Signature": signature,
                   "Wechatpay-Serial": keys["wechat_public_id"], "Wechatpay-Signature-Type": "WECHATPAY2-SHA256-RSA2048"}
        out.append(request(f"wechatpay, associated data {aad!r}", "wechatpay/shop-cn", headers, body.encode()))

    for name, event in [
        ("snapshot", {"id": "evt_sdk", "object": "event", "type": "payment_intent.succeeded", "created": at,
                      "data": {"object": {"id": "pi_1", "amount_received": 500, "currency": "jpy"}}}),
        ("thin", {"id": "evt_sdk2", "object": "v2.core.event", "type": "v1.payout.paid", "created": "2026-11-29T04:05:06Z"}),
    ]:
        for indent in (None, 2):
            body = json.dumps(event, indent=indent, ensure_ascii=False)
            header = WebhookSignature.generate_signature_header(body, keys["stripe"], at)
            out.append(request(f"stripe, {name}, indent {indent}", "stripe/shop-intl", {"Stripe-Signature": header}, body.encode()))

    for amount in ("88.88", 88.88, 88):
        claims = {"merchantID": "JT01", "invoiceNo": "ORDER-3", "amount": amount, "currencyCode": "THB", "tranRef": "7",
                  "respCode": "0000", "transactionDateTime": "20261129110504", "respDesc": "สำเร็จ"}
        token = jwt.encode(claims, keys["2c2p"], algorithm="HS256")
        out.append(request(f"2c2p, amount {amount!r}", "2c2p/shop-th", {}, json.dumps({"payload": token}).encode()))
    return out


def judge_alipay(keys, headers, body, at):
    fields = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
    client = once("alipay", lambda: alipay_client(keys))
    assert client.verify(fields, fields.pop("sign")), "signature"


def wechat_client(keys):
    client = WeChatPay(wechatpay_type=WeChatPayType.NATIVE, mchid="1900000001", private_key=keys["wechat_private"],
                       cert_serial_no="00", appid="wx0000000000000001", apiv3_key=keys["wechat_v3_key"],
                       public_key=keys["wechat_public"], public_key_id=keys["wechat_public_id"])
    client._core._certificates.append(load_certificate(keys["wechat_certificate"]))
    client._core._update_certificates = lambda: None  # no network for a serial that is not held
    return client


def judge_wechat(keys, headers, body, at):
    client = once("wechat", lambda: wechat_client(keys))
    assert client.callback(headers, body), "signature"


def judge_stripe(keys, headers, body, at):
    time.time = lambda: at  # the SDK judges against the clock
    WebhookSignature.verify_header(body, headers.get("stripe-signature"), keys["stripe"], tolerance=300)


def judge_2c2p(keys, headers, body, at):
    jwt.decode(json.loads(body)["payload"], keys["2c2p"], algorithms=["HS256"])


JUDGES = {"alipay": judge_alipay, "wechatpay": judge_wechat, "stripe": judge_stripe, "2c2p": judge_2c2p}


def judge(given):
    out = []
    for r in given["requests"]:
        try:
            JUDGES[r["account"].split("/")[0]](given["keys"], r["headers"], base64.b64decode(r["body"]), r["at"])
            out.append(None)
        except Exception as why:  # an SDK's own errors have no common type
            out.append(f"{type(why).__name__}: {why}"[:200])
    return out


json.dump({"send": send, "judge": judge}[sys.argv[1]](json.load(sys.stdin)), sys.stdout)
