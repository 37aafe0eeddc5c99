#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/decoder/config.h"

namespace hearth::bench {

/// A model that `hearth bench report` supports by name. For language models, the fields have the values of
/// the published config.json.
struct ReportModel {
  std::string_view name;  ///< name in AMD's benchmark, such as "Llama-3.1-8B"
  /// model_type in config.json of a language model; empty: an image model or denoiser.
  std::string_view family;
  /// Row length, and rows per device, in AMD's benchmark. For models that are not in that benchmark: those of
  /// a model of similar size. For images, `length` is the side in pixels.
  int64_t length = 0, pretrain_batch = 0, finetune_batch = 0;
  int64_t vocab_size = 0, hidden = 0, intermediate = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0;
  int64_t head_size = 0, max_positions = 0;
  double rope_theta = 0;
  double rope_factor = 0;  ///< factor of rope_type llama3; 0: no scaling
  bool tied_head = false;
  /// For image models: the name in models::model_list().
  std::string_view image_model = {};
  /// For denoisers: the model of a latents case (BenchCase::model).
  std::string_view denoiser = {};

  bool is_text() const { return !family.empty(); }
};

/// Returns all models that `hearth bench report` supports by name.
std::span<const ReportModel> report_models();

/// Returns a model by name, ignoring case; null if there is none.
const ReportModel* find_report_model(std::string_view name);

/// Returns the decoder config of a language model.
models::DecoderConfig decoder_config(const ReportModel& model);

/// Returns the FLOP of one row of `length` tokens as torchtitan counts them: 6 per weight and token (without
/// the embedding table, unless it is also the output head), plus attention as if no position were masked,
/// although half of them are.
double torchtitan_flops(const models::DecoderConfig& decoder, int64_t num_parameters, int64_t length);

}  // namespace hearth::bench
