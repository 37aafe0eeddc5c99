#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "encoders/model_part.h"

namespace hearth::encoders {

class CaptionEncoder;

/// Computes the text conditioning of a denoiser from captions, with the text encoders of a folder in
/// diffusers' layout (model_index.json): T5's last hidden states and CLIP's pooled vector (FLUX.1), or the
/// concatenated hidden states of a Qwen3 after 9, 18 and 27 layers (FLUX.2 klein). In f32, with at most one
/// layer's weights in memory.
class TextCoder {
 public:
  /// `num_tokens`: length to which texts are truncated and padded. Throws a UserError if a file or tensor is
  /// missing or invalid.
  TextCoder(const fs::path& model_folder, int64_t num_tokens, const Compute& compute);
  ~TextCoder();
  TextCoder(const TextCoder&) = delete;
  TextCoder& operator=(const TextCoder&) = delete;

  /// Width of a hidden state in the output.
  int64_t text_width() const;
  int64_t pooled_width() const;  ///< width of the pooled vector; 0: there is none
  int64_t num_tokens() const;
  /// Returns a hash of the weights of the text encoders (io::fingerprint).
  uint64_t hash() const;
  /// Returns the bytes allocated while encoding. The hidden states of a group of captions take about as much
  /// memory in addition.
  int64_t memory_bytes() const;

  /// Returns sentences with the number of captions that exceed the token limits of the text encoders; empty
  /// if none.
  std::string truncation_note(std::span<const std::string> captions) const;

  /// Calls take(caption, text, pooled) for each caption in order: hidden states [num_tokens, text_width] and
  /// pooled vector [pooled_width].
  void encode(std::span<const std::string> captions,
              const std::function<void(size_t caption, std::span<const float> text,
                                       std::span<const float> pooled)>& take);

 private:
  std::unique_ptr<CaptionEncoder> encoder_;
};

}  // namespace hearth::encoders
