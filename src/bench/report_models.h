#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/decoder/config.h"

namespace hearth::bench {

/// A model that `hearth bench report` knows by name. Language models have the values of their published
/// config.json.
struct ReportModel {
  std::string_view name;    ///< name in AMD's benchmark, such as "Llama-3.1-8B"
  std::string_view family;  ///< model_type of a language model; empty: images
  /// Row length and rows per device in AMD's benchmark; for models that it lacks, those of a model of similar
  /// size. For images, `length` is the side in pixels.
  int64_t length = 0, pretrain_batch = 0, finetune_batch = 0;
  int64_t vocab_size = 0, hidden = 0, intermediate = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0;
  int64_t head_size = 0, max_positions = 0;
  double rope_theta = 0;
  double rope_factor = 0;  ///< factor of rope_type llama3; 0: no scaling
  bool tied_head = false;
  std::string_view image_model = {};  ///< image models: one of models::model_list()
  std::string_view denoiser = {};     ///< denoisers: the model of a latents case (bench/models.h)

  bool is_text() const { return !family.empty(); }
};

/// Returns all models that are known by name.
std::span<const ReportModel> report_models();

/// Returns a model by name, ignoring case; null if there is none.
const ReportModel* find_report_model(std::string_view name);

/// Returns the decoder config of a language model.
models::DecoderConfig decoder_config(const ReportModel& model);

/// Returns the FLOP of a row of `length` tokens by torchtitan's count: 6 per weight (except an embedding
/// table that is not also the head) and token, plus all of attention, although half of it is masked.
double torchtitan_flops(const models::DecoderConfig& decoder, int64_t num_parameters, int64_t length);

}  // namespace hearth::bench
