#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "encoders/model_part.h"

namespace hearth::encoders {

class CaptionEncoder;

/// Makes of captions what a denoiser is told of them, with the text models of a folder in diffusers' layout,
/// as its model_index.json names them: T5's last hidden states with CLIP's pooled vector (FLUX.1), or the
/// hidden states of a Qwen3 after 9, 18 and 27 layers side by side (FLUX.2 klein). In f32, without more than
/// one layer's weights in memory.
class TextCoder {
 public:
  /// `num_tokens`: to which texts are cut and padded. UserError where something is missing or wrong.
  TextCoder(const fs::path& model_folder, int64_t num_tokens, const Compute& compute);
  ~TextCoder();
  TextCoder(const TextCoder&) = delete;
  TextCoder& operator=(const TextCoder&) = delete;

  int64_t text_width() const;
  int64_t pooled_width() const;  ///< 0: there is no pooled vector
  int64_t num_tokens() const;
  /// Of the models' weights (io::fingerprint).
  uint64_t hash() const;
  /// What is allocated while it encodes, but for the hidden states of as many captions as take as much again.
  int64_t memory_bytes() const;

  /// Returns sentences with the number of captions that exceed the token limits of the text models; empty if
  /// none.
  std::string cut_note(std::span<const std::string> captions) const;

  /// Hands out, in order, each caption's hidden states [num_tokens, text_width] and pooled vector
  /// [pooled_width].
  void encode(std::span<const std::string> captions,
              const std::function<void(size_t caption, std::span<const float> text,
                                       std::span<const float> pooled)>& take);

 private:
  std::unique_ptr<CaptionEncoder> encoder_;
};

}  // namespace hearth::encoders
