"""The signal that a tokenizer.json asks for something that only the `tokenizers` library can do."""


class Unsupported(Exception):
    """Raised while a file is read, never seen by a user: the library takes over the whole file.

    The message names the part in the words of the file, such as "normalizer 'Nmt'".
    """
