#pragma once

namespace hearth::text {

/// Classes of characters as Hugging Face's tokenizers have them. The tables behind those are older than the
/// Unicode of other steps, so what came into Unicode since is in none of them.

/// Punctuation, and all of ASCII that is neither letter, digit, space nor control.
bool is_punctuation(char32_t value);
/// Control, format and private characters, but for tab and ends of lines.
bool is_other(char32_t value);
/// Marks that BertNormalizer strips, and those that StripAccents does.
bool is_nonspacing_mark(char32_t value);
bool is_mark(char32_t value);
/// Characters whose decompositions, compositions or combining classes came with Unicode 10 or later: their
/// normal forms leave them alone.
bool has_new_normal_form(char32_t value);
/// What BertNormalizer takes for a Chinese character.
bool is_chinese(char32_t value);

}  // namespace hearth::text
