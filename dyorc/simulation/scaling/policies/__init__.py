"""The policies that DyOrc's is compared with: what other systems do, from their documentation and source, in our own words."""
