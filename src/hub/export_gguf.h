#pragma once

#include <string>
#include <vector>

#include "hub/model_folder.h"
#include "io/gguf.h"
#include "models/decoder/config.h"

namespace hearth::hub {

struct GgufOptions {
  fs::path out;                           ///< a file
  io::GgufType type = io::GgufType::f16;  ///< of matrices; vectors are f32
  int num_threads = 1;
};

struct GgufResult {
  int64_t num_changed = 0;  ///< tensors that the adapter changed
  int64_t num_tensors = 0;
  std::vector<std::string> notes;  ///< what llama.cpp will do otherwise than the model
};

/// Writes a model, merged with its adapter, as a GGUF file under the names and in the layouts of llama.cpp's
/// converter, one tensor in memory at a time. UserError where llama.cpp has no way to say what the model
/// does.
GgufResult export_gguf(const ModelFolder& model, const GgufOptions& options);

/// Returns sentences on how llama.cpp's computation differs for a model that can be exported.
std::vector<std::string> gguf_notes(const models::DecoderConfig& config);

/// Where row `row` of a query or key matrix of `num_rows` goes: rotate-half heads become interleaved pairs.
int64_t interleaved_row(int64_t row, int64_t num_rows, int64_t num_heads);

}  // namespace hearth::hub
