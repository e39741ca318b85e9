"""Our scheduling core: snapshot in, plan out. Pure; the same code live, in `tm why` and under the simulator."""
