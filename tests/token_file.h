#pragma once

#include <cstdint>
#include <vector>

#include "io/safetensors.h"

namespace hearth {

/// Writes tokens as a language model's data.
inline void write_tokens(const fs::path& path, const std::vector<int32_t>& tokens) {
  io::write_safetensors(path, {{.name = "tokens",
                                .dtype = DType::i32,
                                .shape = {std::ssize(tokens)},
                                .bytes = std::as_bytes(std::span(tokens))}});
}

}  // namespace hearth
