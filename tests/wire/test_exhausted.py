"""What no wait cures is told from limits that pass, in the words of each provider, whatever the status."""

from typing import Any

import orjson

from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.table import DIALECTS
from tests.support.each_case import check_each


def judged(status: int, message: object, code: object = None, kind: object = None, **more: Any) -> Verdict:
    error = {"message": message, "code": code, "type": kind, **more}
    return DIALECTS["openai_chat"].understand(
        HttpResponse(status=status, headers={}, body=orjson.dumps({"error": error}))
    )[0]


ENDS: list[tuple[int, str, str, str]] = [
    (400, "You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC.",
     "invalid_request_error", "no_credit"),
    (400, "Your credit balance is too low to access the Anthropic API.", "invalid_request_error", "no_credit"),
    (400, "This organization has been disabled.", "invalid_request_error", "no_credit"),
    (429, "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota",
     "no_credit"),
    (429, "You exceeded your current quota, please check your plan and billing details.", "", "no_credit"),
    (400, "Billing hard limit has been reached", "billing_hard_limit_reached", "no_credit"),
    (429, "Project spend limit exceeded.", "project_spend_limit_exceeded", "no_credit"),
    (402, "Insufficient Balance", "invalid_request_error", "no_credit"),
    (402, "", "", "no_credit"),
    (402, "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only "
     "afford 2679.", "402", "no_credit"),
    (403, "Your newly created team doesn't have any credits or licenses yet. You can purchase those on the console.",
     "The caller does not have permission to execute the specified operation", "no_credit"),
    (429, "Your team has either used all available credits or reached its monthly spending limit.", "", "no_credit"),
    (403, "The selected model requires paid balance. Your paid balance is insufficient. Please top up.", "30011",
     "no_credit"),
    (429, "Your account org-x is suspended due to insufficient balance, please recharge your account or check your "
     "plan and billing details", "exceeded_current_quota_error", "no_credit"),
    (429, "Insufficient balance or no resource package. Please recharge.", "1113", "no_credit"),
    (429, "余额不足或无可用资源包,请充值。", "1113", "no_credit"),
    (400, "Access denied, please make sure your account is in good standing.", "Arrearage", "no_credit"),
    (412, "Account acme is suspended, possibly due to reaching the monthly spending limit or failure to pay past "
     "invoices.", "", "no_credit"),
    (429, "Credit limit exceeded, please navigate to the billing page to add credits.", "credit_limit", "no_credit"),
    (402, "Account 'x': Cloud credits expired - Please contact NVIDIA representatives", "", "no_credit"),
    (400, "Budget has been exceeded! Current cost: 10.1, Max budget: 10.0", "budget_exceeded", "no_credit"),
    (498, "Insufficient credits on this account.", "", "no_credit"),
    (403, "Key limit exceeded (total limit). Manage it in the settings.", "403", "no_credit"),
    (401, "Insufficient balance. Manage your billing.", "CreditsError", "no_credit"),
    (429, "Rate limit reached for gpt-4o in organization org-x on requests per day (RPD): Limit 200, Used 200, "
     "Requested 1. Please try again in 7m12s.", "rate_limit_exceeded", "quota"),
    (429, "Rate limit reached for model `llama` in organization `o` service tier `on_demand` on tokens per day (TPD): "
     "Limit 100000, Used 97050, Requested 3619. Please try again in 9m38.016s. Need more tokens? Upgrade to Dev Tier "
     "today.", "rate_limit_exceeded", "quota"),
    (429, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day", "429",
     "quota"),
    (429, "Too many tokens per day, please wait before trying again.", "ThrottlingException", "quota"),
    (429, "Requests per day limit exceeded - too many requests sent.", "request_quota_exceeded", "quota"),
    (429, "You are using a Trial key, which is limited to 1000 API calls / month.", "", "quota"),
    (429, "Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-07-14 07:49:08", "1310", "quota"),
    (429, "Usage limit reached for the past 5 hours. Resets at 2026-08-07T05:00:00Z", "1316", "quota"),
    (429, "Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait 40000 seconds before retrying.",
     "RateLimitReached", "quota"),
    (403, "The free tier of the model has been exhausted. If you wish to continue, disable the free tier only mode.",
     "AllocationQuota.FreeTierOnly", "quota"),
    (403, "Out of call volume quota. Quota will be replenished in 12.11:02:36.", "403", "quota"),
    (400, "Daily call limit for this API reached.", "1304", "quota"),
    (429, "The request quota for today has been reached.", "", "quota"),
    (429, "You have exceeded the 24-hour limit", "", "quota"),
    (429, "Quota of 100 calls in 24h used", "", "quota"),
    (400, "Free allocated quota exceeded.", "Throttling.AllocationQuota", "quota"),
    (429, "This key has no remaining budget for this billing cycle", "", "no_credit"),
    (403, "This API method requires billing to be enabled.", "PERMISSION_DENIED", "no_credit"),
    (403, "Your trial has ended.", "", "no_credit"),
    (400, "Access to model denied for this organization", "", "no_access"),
    (400, "The model requires terms acceptance.", "model_terms_required", "no_access"),
    (404, "Your organization must be verified to use the model `o3`.", "", "no_access"),
    (404, "Model use case details have not been submitted for this account.", "ResourceNotFoundException", "no_access"),
    (403, "Project `p` does not have access to model `m`", "model_not_found", "no_access"),
    (400, "Operation not allowed", "ValidationException", "no_access"),
    (400, "Incorrect API key provided: xa***. You can obtain an API key from the console.",
     "Client specified an invalid argument", "bad_key"),
    (400, "The model `mixtral` has been decommissioned and is no longer supported.", "model_decommissioned",
     "unknown_model"),
    (400, "Model Not Exist", "invalid_request_error", "unknown_model"),
    (404, "The model `x` does not exist or you do not have access to it.", "model_not_found", "unknown_model"),
]  # fmt: skip


def test_what_no_wait_cures_ends_its_lane_in_the_providers_words() -> None:
    def check(case: tuple[int, str, str, str]) -> None:
        status, message, code, kind = case
        for verdict in (judged(status, message, code), judged(status, message, None, code)):
            assert (verdict.action, verdict.kind, verdict.outcome) == ("end_lane", kind, str(status))
            assert verdict.message.startswith(message.rstrip(".")[:100])
            assert not verdict.billable

    check_each(((f"{case[0]} {case[1][:60]}", case) for case in ENDS), check)


PASSES: list[tuple[int, str, str, str]] = [
    (429, "Rate limit reached for gpt-4o on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in "
     "20s.", "rate_limit_exceeded", "rate_limit"),
    (429, "Rate limit reached for model `llama` on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. "
     "Please try again in 4.77s. Need more tokens? Upgrade to Dev Tier today at a page of billing", "tokens",
     "rate_limit"),
    (429, "You exceeded your current quota, please check your plan and billing details. Please retry in 33.5s.",
     "RESOURCE_EXHAUSTED", "rate_limit"),
    (429, "Rate limit exceeded: free-models-per-min.", "429", "rate_limit"),
    (429, "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
     "rate_limit_error", "rate_limit"),
    (429, "Requests to the API have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry "
     "after 5 seconds.", "429", "rate_limit"),
    (429, "Tokens per minute limit exceeded - too many tokens processed.", "token_quota_exceeded", "rate_limit"),
    (429, "You are using a Trial key, which is limited to 20 API calls / minute.", "", "rate_limit"),
    (429, "Allocated quota exceeded, please increase your quota limit.", "Throttling.AllocationQuota", "rate_limit"),
    (429, "Service tier capacity exceeded for this model.", "3505", "rate_limit"),
    (429, "Provider returned error", "429", "rate_limit"),
    (429, "Your account reached max request concurrency: 3", "rate_limit_reached_error", "rate_limit"),
    (498, "Flex tier capacity exceeded, try again later.", "capacity_exceeded", "overload"),
    (500, "The billing service timed out: insufficient balance check.", "server_error", "server_error"),
    (503, "The model is overloaded. Please try again later.", "UNAVAILABLE", "overload"),
]  # fmt: skip


def test_a_limit_that_passes_is_waited_for() -> None:
    def check(case: tuple[int, str, str, str]) -> None:
        status, message, code, kind = case
        verdict = judged(status, message, code)
        assert (verdict.action, verdict.kind) == ("retry", kind)

    check_each(((f"{case[0]} {case[1][:60]}", case) for case in PASSES), check)


def test_more_than_an_account_may_ever_ask_parks_its_episode_alone() -> None:
    cases = [
        (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389. The input or "
         "output tokens must be reduced in order to run successfully."),
        (413, "Request too large for model `llama` in organization `o` service tier `on_demand` on tokens per minute "
         "(TPM): Limit 6000, Requested 12328, please reduce your message size and try again."),
        (429, "Extra usage is required for long context requests."),
        (429, "Tokens per minute: limit 8,000, requested 9,100."),
    ]  # fmt: skip

    def check(case: tuple[int, str]) -> None:
        verdict = judged(*case, "rate_limit_exceeded")
        assert (verdict.action, verdict.kind, verdict.message) == ("defer", "too_large", case[1])

    check_each(((case[1][:40], case) for case in cases), check)


def test_a_refusal_in_words_with_status_200_is_that_refusal() -> None:
    bodies: list[tuple[Any, str]] = [
        ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}, "choices": None}, "no_credit"),
        ({"code": 1113, "msg": "Insufficient balance or no resource package. Please recharge.", "success": False},
         "no_credit"),
        ({"code": "Arrearage", "message": "Access denied, please make sure your account is in good standing."},
         "no_credit"),
        ({"error": {"message": "Insufficient credits."}}, "no_credit"),
        ({"error": {"message": "Daily quota exceeded for this key.", "code": 429}}, "quota"),
    ]  # fmt: skip

    def check(case: tuple[Any, str]) -> None:
        body, kind = case
        response = HttpResponse(status=200, headers={}, body=orjson.dumps(body))
        verdict, reply, _ = DIALECTS["openai_chat"].understand(response)
        assert (verdict.action, verdict.kind, reply, verdict.outcome == "unreadable") == ("end_lane", kind, None, False)

    check_each(((str(body), (body, kind)) for body, kind in bodies), check)


def test_the_time_at_which_a_days_quota_is_renewed_is_told() -> None:
    headers = {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795910400000"}
    verdict = judged(429, "Rate limit exceeded: free-models-per-day.", 429, metadata={"headers": headers})
    words = "Rate limit exceeded: free-models-per-day (renewed at 2026-11-29 00:00 UTC)"
    assert (verdict.action, verdict.kind, verdict.message) == ("end_lane", "quota", words)


def test_a_wait_is_read_from_metadata_and_from_words_where_no_header_states_it() -> None:
    def waits(message: str, date: str = "", **more: Any) -> float | None:
        body = orjson.dumps({"error": {"message": message, "code": 429, **more}})
        headers = {"date": date} if date else {}
        return DIALECTS["openai_chat"].judge(HttpResponse(status=429, headers=headers, body=body)).wait_s

    metadata = {"headers": {"X-RateLimit-Reset": "1795910400000"}}
    assert waits("Rate limit exceeded.", "Sat, 28 Nov 2026 23:59:30 GMT", metadata=metadata) == 30.0
    assert waits("Rate limit exceeded.", metadata=metadata) is None
    spoken = {
        "Please try again in 20s.": 20.0,
        "Please try again in 1m5.5s.": 65.5,
        "Please try again in 6ms.": 0.006,
        "Please retry after 5 seconds.": 5.0,
        "Please wait 2 minutes before retrying.": 120.0,
        "Please try again later.": None,
        "Please try again in a while.": None,
    }
    check_each(spoken.items(), lambda _: None)
    for message, seconds in spoken.items():
        assert waits(message) == seconds, message
