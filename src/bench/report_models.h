#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/decoder/config.h"

namespace hearth::bench {

/// A model that `hearth bench report` knows by name. Of a language model the figures of its config.json, as
/// its makers publish it.
struct ReportModel {
  std::string_view name;    ///< as AMD's benchmark spells it: "Llama-3.1-8B"
  std::string_view family;  ///< model_type of a language model; empty: images
  /// The shape of a row and a device's rows in AMD's benchmark; of models that it lacks, those of one of like
  /// size. Images: their side.
  int64_t length = 0, pretrain_batch = 0, finetune_batch = 0;
  int64_t vocab_size = 0, hidden = 0, intermediate = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0;
  int64_t head_size = 0, max_positions = 0;
  double rope_theta = 0;
  double rope_factor = 0;  ///< of rope_type llama3; 0: plain
  bool tied_head = false;
  std::string_view image_model = {};  ///< one of models::model_list()
  std::string_view denoiser = {};     ///< one of a case of latents (bench/models.h)

  bool is_text() const { return !family.empty(); }
};

std::span<const ReportModel> report_models();

/// The model of that name, in capitals or not; null where there is none.
const ReportModel* find_report_model(std::string_view name);

/// What its config.json says.
models::DecoderConfig decoder_config(const ReportModel& model);

/// The work of a row of so many tokens as torchtitan counts it: 6 for each weight but those of an embedding
/// that is not the head, too, and all of attention, though half of it is masked.
double torchtitan_flops(const models::DecoderConfig& decoder, int64_t num_parameters, int64_t length);

}  // namespace hearth::bench
