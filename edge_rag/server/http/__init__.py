"""HTTP adapter: the shape of OpenAI's API and followable citations, over the operations of ``service``."""
