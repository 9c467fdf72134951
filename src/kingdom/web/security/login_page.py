"""The page for those who are not logged in. It is plain HTML: nothing of the dashboard is sent to strangers."""

from __future__ import annotations

from html import escape
from string import Template
from typing import Final

from starlette.responses import HTMLResponse

_PAGE: Final = Template("""<!doctype html>
<html lang="$locale">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kingdom: $title</title>
<style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5 }
html { background: Canvas; color: CanvasText }
body { max-width: 36rem; margin: 15vh auto; padding: 0 1rem; overflow-wrap: anywhere; word-break: keep-all }
code { padding: .15rem .4rem; border: 1px solid; border-radius: .3rem; overflow-wrap: anywhere }
.button { display: inline-block; padding: .55rem 1.1rem; border-radius: .4rem; background: #1d4ed8; color: #fff;
  font-weight: 600; text-decoration: none }
.button:focus-visible { outline: 3px solid #f59e0b; outline-offset: 2px }
</style>
</head>
<body>
<main>
<h1>Kingdom</h1>
<p role="status">$what</p>
$provider<p>$where</p>
<p><code>kingdom web --link</code></p>
<p>$then <a href="/">$onward</a></p>
</main>
</body>
</html>
""")
_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "title": "log in",
        "where": "On the machine where it runs, in the folder of your court or your workflows:",
        "then": "prints a link. Open it in this browser, once. Or ask the owner for a link of your own "
        "(<code>kingdom token add NAME</code>). If you have just done so:",
        "onward": "go on to the dashboard",
        "needs-link": "This page needs a link that contains a token.",
        "not-logged-in": "You are not logged in.",
        "too-often": "{why}",
        "provider-button": "Log in with {label}",
        "or": "Or with a link.",
        "no-answer": "The provider {issuer} does not answer ({why}). Try again in a minute; if it lasts, your "
        "administrator checks web.oidc.issuer and the network.",
        "provider": "The provider {issuer} could not log you in: {why}. Your administrator checks web.oidc in "
        "config/system.yaml.",
        "denied": "The provider did not log you in: {why}. Try again, or ask the people who manage your accounts.",
        "expired": "This log-in took longer than ten minutes, or the server was restarted meanwhile. Start it again.",
        "other-browser": "This log-in was started in another browser, or cookies are blocked. Start it again here.",
        "used-code": "The provider refuses the code of this log-in: it was used already, or is too old. Start it "
        "again.",
        "bad-token": "The answer of the provider is not accepted: {why}. Start the log-in again; if it lasts, tell "
        "your administrator.",
        "clock": "The answer of the provider is not valid now: issued {issued}, valid until {expires}; this server's "
        "clock says {now}. Your administrator sets its clock (NTP), then start again.",
        "no-name": "Your account has no claim {claim}, with which your actions would be signed. Your "
        "administrator chooses another with web.oidc.name_claim, or asks for a further scope.",
        "bad-name": "Your account has the {claim} {name}, which cannot sign actions here: up to 60 letters, digits "
        "and . _ @ + - are allowed, and no name of a part of the court.",
        "unverified": "The provider has not verified the e-mail address {name}. Verify it there, then log in again.",
        "no-role": "{name} may not log in here. Ask an owner to add your account to web.oidc.roles in "
        "config/system.yaml, or log in with another account.",
    },
    "ko": {
        "title": "로그인",
        "where": "서버가 실행되는 컴퓨터에서, 궁정이나 워크플로가 있는 폴더에서 다음을 실행하세요.",
        "then": "링크가 나옵니다. 이 브라우저에서 한 번 열어 주세요. 소유자에게 자신의 링크를 요청할 수도 "
        "있습니다(<code>kingdom token add NAME</code>). 이미 열었다면",
        "onward": "대시보드로 가기",
        "needs-link": "토큰이 들어 있는 링크가 필요합니다.",
        "not-logged-in": "로그인하지 않았습니다.",
        "too-often": "요청이 너무 많습니다. 잠시 뒤에 다시 시도하세요. ({why})",
        "provider-button": "{label} 계정으로 로그인",
        "or": "또는 링크로 로그인할 수 있습니다.",
        "no-answer": "로그인 제공자 {issuer}이(가) 응답하지 않습니다({why}). 잠시 뒤에 다시 시도하세요. 계속되면 "
        "서버를 운영하는 사람이 web.oidc.issuer와 네트워크를 확인해야 합니다.",
        "provider": "로그인 제공자 {issuer}에서 로그인하지 못했습니다: {why}. 서버를 운영하는 사람이 "
        "config/system.yaml의 web.oidc를 확인해야 합니다.",
        "denied": "로그인 제공자가 로그인을 거절했습니다: {why}. 다시 시도하거나 계정 관리자에게 문의하세요.",
        "expired": "로그인에 10분이 넘게 걸렸거나 그사이에 서버가 다시 시작되었습니다. 다시 시작하세요.",
        "other-browser": "다른 브라우저에서 시작한 로그인이거나 쿠키가 차단되었습니다. 여기에서 다시 시작하세요.",
        "used-code": "로그인 제공자가 이 로그인의 코드를 거절했습니다. 이미 썼거나 오래된 코드입니다. 다시 시작하세요.",
        "bad-token": "로그인 제공자의 응답을 받아들일 수 없습니다: {why}. 다시 시작하세요. 계속되면 서버를 운영하는 "
        "사람에게 알려 주세요.",
        "clock": "로그인 제공자의 응답이 지금은 유효하지 않습니다. 발급 {issued}, 만료 {expires}, 이 서버의 시각 "
        "{now}. 서버를 운영하는 사람이 시계(NTP)를 맞춘 뒤 다시 시작하세요.",
        "no-name": "계정에 서명에 쓸 클레임 {claim}이(가) 없습니다. 서버를 운영하는 사람이 web.oidc.name_claim으로 "
        "다른 것을 고르거나 범위(scope)를 더 요청해야 합니다.",
        "bad-name": "계정의 {claim} {name}(으)로는 서명할 수 없습니다. 영문자, 숫자와 . _ @ + - 60자까지 쓸 수 있고, "
        "궁정의 부분 이름은 쓸 수 없습니다.",
        "unverified": "로그인 제공자가 이메일 주소 {name}을(를) 확인하지 않았습니다. 그곳에서 확인한 뒤 다시 "
        "로그인하세요.",
        "no-role": "{name}은(는) 여기에 로그인할 수 없습니다. 소유자에게 config/system.yaml의 web.oidc.roles에 "
        "계정을 추가해 달라고 하거나 다른 계정으로 로그인하세요.",
    },
}


_ENTERED: Final = Template("""<!doctype html>
<html lang="$locale">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0;url=$back">
<title>Kingdom</title>
<style>:root { color-scheme: light dark; font-family: system-ui, sans-serif }</style>
</head>
<body><main><p><a href="$back">$onward</a></p></main></body>
</html>
""")


def login_page(
    locale: str, status: int, what: str, label: str = "", provider_path: str = "", **fields: str
) -> HTMLResponse:
    """Return a page that says what is the matter (a key of the texts), and how to log in.

    ``label`` is the name of the provider, and ``provider_path`` where the log-in with it begins, if there is one.
    """
    texts = _TEXTS[locale]
    shown = escape(texts[what].format(**fields))
    named = {key: texts[key] for key in ("title", "where", "then", "onward")}
    provider = ""
    if provider_path:
        words = escape(texts["provider-button"].format(label=label))
        provider = f'<p><a class="button" href="{escape(provider_path)}">{words}</a></p>\n'
        named["where"] = texts["or"] + " " + named["where"]
    return HTMLResponse(_PAGE.substitute(locale=locale, what=shown, provider=provider, **named), status)


def entered_page(locale: str, back: str) -> HTMLResponse:
    """Return a page that goes on to another page of this server by itself."""
    return HTMLResponse(_ENTERED.substitute(locale=locale, back=escape(back), onward=_TEXTS[locale]["onward"]))
