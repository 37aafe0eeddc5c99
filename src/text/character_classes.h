#pragma once

namespace hearth::text {

/// Character classes of Hugging Face's tokenizers. They belong to an older version of Unicode than the other
/// steps of tokenization, so newer characters are in no class.

/// True for punctuation and for ASCII characters that are neither letters, digits, spaces nor controls.
bool is_punctuation(char32_t value);
/// True for control, format and private-use characters except tab and line ends.
bool is_other(char32_t value);
/// is_nonspacing_mark: true for marks that BertNormalizer removes. is_mark: true for marks that StripAccents
/// removes.
bool is_nonspacing_mark(char32_t value);
bool is_mark(char32_t value);
/// True for characters whose decomposition, composition or combining class was added in Unicode 10 or later;
/// the normalizer leaves them unchanged.
bool has_new_normal_form(char32_t value);
/// True for the characters that BertNormalizer treats as Chinese (CJK ideographs).
bool is_chinese(char32_t value);

}  // namespace hearth::text
