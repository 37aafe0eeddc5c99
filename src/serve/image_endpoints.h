#pragma once

#include <string>

#include "net/http_server.h"
#include "run/image_session.h"
#include "run/predict_session.h"
#include "serve/task_thread.h"

namespace hearth::serve {

/// Adds POST /predict: the body is an image file, the answer contains classes, boxes or a mask. With
/// ?format=png the answer is the mask as a PNG file. `session` must be used by `thread` only.
void add_predict_endpoint(net::HttpServer& server, run::PredictSession& session, TaskThread& thread);

/// Adds POST /v1/images/generations in the format of OpenAI's API. `session` must be used by `thread` only.
/// `model`: name of the model in requests.
void add_generation_endpoint(net::HttpServer& server, run::ImageSession& session, TaskThread& thread,
                             const std::string& model);

}  // namespace hearth::serve
