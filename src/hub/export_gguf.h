#pragma once

#include <string>
#include <vector>

#include "hub/model_folder.h"
#include "io/gguf.h"
#include "models/decoder/config.h"

namespace hearth::hub {

struct GgufOptions {
  fs::path out;                           ///< output file
  io::GgufType type = io::GgufType::f16;  ///< element type of matrices; vectors are f32
  int num_threads = 1;
};

struct GgufResult {
  int64_t num_changed = 0;  ///< number of tensors that the adapter changed
  int64_t num_tensors = 0;
  std::vector<std::string> notes;  ///< gguf_notes(), and matrices that are stored in another type
};

/// Writes a model, merged with its adapter, as a GGUF file with the names and layouts of llama.cpp's
/// converter. Holds one tensor in memory at a time. Throws a UserError if llama.cpp does not support the
/// model.
GgufResult export_gguf(const ModelFolder& model, const GgufOptions& options);

/// Returns sentences for the user on how llama.cpp computes this model differently from transformers.
std::vector<std::string> gguf_notes(const models::DecoderConfig& config);

}  // namespace hearth::hub
