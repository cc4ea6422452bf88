"""The fixtures of a business's database."""

from tests.hongyan_client.business_databases import business as business
from tests.hongyan_client.business_databases import business_url as business_url
