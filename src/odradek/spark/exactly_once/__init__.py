"""The exactly-once sink: a batch's transactions stay open until one fenced decision names them."""
