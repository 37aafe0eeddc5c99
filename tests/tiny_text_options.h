#pragma once

#include "engine/options.h"
#include "models/decoder/config.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::engine {

inline constexpr int64_t kTinyContext = 32;
inline constexpr int64_t kTinyRows = 2;

/// AdamW on the tiny language model, where even the smallest value may wait in host memory.
inline EngineOptions tiny_text_options() {
  const TemporaryFolder folder;
  write_tiny_model(folder.path());
  EngineOptions options{
      .objective = tasks::language_model(
          {.config = models::read_decoder_config(folder.path() / "config.json"), .context = kTinyContext}),
      .batch = kTinyRows};
  options.optimizer.name = "adamw";
  options.num_threads = 2;
  options.offload.min_bytes = 64;
  return options;
}

}  // namespace hearth::engine
